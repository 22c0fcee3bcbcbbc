"""From answers to a report. To read in this order: `outcomes`, which items are right; `intervals`, confidence intervals
and tests; `metrics`, the numbers of groups of items and of two models; `baselines`, what is possible without
looking; `results`, runs and groups of comparable runs; `tables`, `figures`, `mistakes`; `report`, the page."""
