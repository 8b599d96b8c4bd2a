//! Six nodes, moving slots, and a primary that dies.
