"""Regions of pictures: boxes with feature vectors.

Read `sources` (the registry `SOURCES` and `RegionTable`) first, then `pictures` (their input). `cells` and `recogniser`
make the features of the sources scene and grid, `receptive_field` adds context to them; `detector` and `files` are the
other two sources.
"""
