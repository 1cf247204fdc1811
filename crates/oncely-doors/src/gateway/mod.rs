//! The gateway: in front of an API every POST is safe to retry; between an agent and a provider every call carries the
//! right key. What is not guarded passes through as it comes.
//!
//! - [`config`]: `[server]` and `[[route]]` of `oncely.toml`. [`pattern`]: which paths a route matches.
//! - [`Gateway`]: from a request to an answer; `route`: by which way. `guarded`: the upstream as the layer sees it.
//! - [`upstream`]: connections, exact about whether anything was sent; `wire`: one of them. [`forward`]: what changes on the way.
//! - [`serve`]: listens, speaks TLS, drains. `lanes`: the threads that requests stay on; `alert`: when they do not sleep;
//!   `courtesy`: when others run first. `connection`, `activity`: one client, put to rest while it is silent.
//! - `counters`, `reach`, `advice`, `validity`: for metrics and operators. `traced`: requests as spans. `upgrade`: WebSockets. `upload`: long
//!   bodies. [`check`]: asks a service about an attempt in doubt.

mod activity;
pub mod address;
mod advice;
mod alert;
pub mod check;
pub mod config;
mod connection;
mod counters;
mod courtesy;
pub mod forward;
mod guarded;
mod handle;
mod lanes;
pub mod pattern;
mod reach;
mod route;
pub mod serve;
mod tls;
mod traced;
mod upgrade;
mod upload;
pub mod upstream;
mod validity;
mod wire;

pub use self::activity::Underway;
pub use self::connection::Patience;
pub use self::counters::{AllCounters, Count, Counters};
pub use self::handle::{Answer, Gateway};
pub use self::lanes::Lanes;
pub use self::reach::Unreached;
pub use self::tls::{TlsError, acceptor, connector, lapsed};
pub use self::upload::{Pause, Upload};
pub use self::validity::Lapse;
