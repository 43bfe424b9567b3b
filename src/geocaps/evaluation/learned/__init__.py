"""Systems that the paper compares with, in small versions that are trained here: for measuring, not for use."""
