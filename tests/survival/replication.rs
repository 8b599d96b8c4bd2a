//! Replicas: what they are sent, hold and answer.
