//! Failover by Sentinel.
