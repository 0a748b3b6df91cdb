//! GitLab over REST v4.
