"""Regions of pictures: boxes with feature vectors.

Read `sources` (the registry `SOURCES` and `RegionTable`) first, then `pictures` (their input). `cells` and `recogniser`
make the features of the sources scene and grid, `receptive_field` adds their places for models that take no boxes;
`files` is the third source.
"""
