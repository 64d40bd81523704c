"""A worked example of a plug-in package for benchmax."""
