"""Files that users upload.

uploads       the datasets and environments among them
blobs         their content, stored once, and the paths that name it
unused_blobs  content that nothing needs any more, and its removal
corpora       corpora to search, with the filters of their columns
"""
