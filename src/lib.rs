//! ktsu: an event-sourced engine for AI-agent workflows.
