//! Snapshots: saved, loaded, with the module and without it.
