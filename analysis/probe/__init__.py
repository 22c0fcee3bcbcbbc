"""Tools that look at single pictures: `heatmaps`, `variation` and `try_it`."""
