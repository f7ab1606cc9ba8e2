"""Arrow tables as frames, for functions that want pandas or polars.

`pandas_frames` and `polars_frames` convert; `group_frames` cuts one frame a group, `frame_runs` joins many
small ones.
"""
