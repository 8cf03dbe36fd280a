//! Where a server is, or how it is found.

use std::fmt;
use std::path::PathBuf;

use holdline_core::Escaped;

/// The address of the server. `Display` omits user and password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Address {
    /// A TCP port.
    Tcp { host: String, port: u16, tls: bool },
    /// A unix socket.
    Unix(PathBuf),
    /// The current master of a service.
    Service { name: String, tls: bool },
    /// A cluster, by some of its nodes.
    Cluster { seeds: Vec<(String, u16)>, tls: bool },
}

impl Address {
    /// The same with the nodes of a cluster sorted: their order does not make another cluster.
    pub(crate) fn in_order(&self) -> Address {
        let mut address = self.clone();
        if let Address::Cluster { seeds, .. } = &mut address {
            seeds.sort();
        }
        address
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp { host, port, .. } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Address::Tcp { host, port, .. } => write!(f, "{host}:{port}"),
            Address::Unix(path) => write!(f, "{}", path.display()),
            Address::Service { name, .. } => {
                write!(f, "the master of `{}`", Escaped(name))
            }
            Address::Cluster { seeds, tls } => {
                for (at, (host, port)) in seeds.iter().enumerate() {
                    let comma = if at > 0 { "," } else { "" };
                    let one = Address::Tcp { host: host.clone(), port: *port, tls: *tls };
                    write!(f, "{comma}{one}")?;
                }
                Ok(())
            }
        }
    }
}
