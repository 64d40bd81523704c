"""Uploading a run, at its documented path. The code is in `benchmax.platform.sdk.upload`."""

from benchmax.platform.sdk.upload import UploadedTrainingRun, upload_training_run

__all__ = ["UploadedTrainingRun", "upload_training_run"]
