"""Uploaded files (`blobs`), the datasets and environments they are (`uploads`), and corpora with their filters."""
