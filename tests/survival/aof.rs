//! The append-only file: kill -9 and replay.
