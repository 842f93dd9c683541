//! What the admin front door asks of the broker.
