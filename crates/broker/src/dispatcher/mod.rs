//! Dispatch for subscriptions that choose one consumer for each message: Shared, Key_Shared; and Failover selection.
