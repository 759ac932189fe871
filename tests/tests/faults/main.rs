//! distlock under faults, against real servers.
use distlock as _;
