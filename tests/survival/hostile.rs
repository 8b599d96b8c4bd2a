//! Every value, every byte and every argument that is no bucket.
