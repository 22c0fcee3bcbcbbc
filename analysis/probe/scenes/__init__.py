"""Corpora from our own scenes, with exact ground truth. To read in this order: `drawing`, objects and pictures;
`statements`, sentences and their truth; `salience`, rules that must not help; `scene_pairs`, what is tested; `records`
and `corpus`, what is written and how it is built. `pasting` puts objects on backgrounds for try_it and variation."""
