//! The shared facts: tenants, namespaces, topics that exist, schemas.
