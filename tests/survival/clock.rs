//! A wall clock that is set back, and forward.
