//! Where a service is: `http://host:port`, `https://host`, or `h2c://host:port` for HTTP/2 without TLS.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use http::uri::Authority;
use http::{HeaderValue, Uri};

use super::pattern::read_path;

/// How a service is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Speech {
    /// HTTP/1.1.
    Http1,
    /// HTTP/2 from the first byte on.
    Http2,
    /// TLS, and then what both sides agree on.
    Tls,
}

/// The address of a service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// How it is spoken to.
    pub speech: Speech,
    /// Host, and port where it is not the usual one: what goes into `Host`.
    pub authority: Authority,
    /// The same as a header's value.
    pub host_header: HeaderValue,
    /// The host alone.
    pub host: String,
    /// The port.
    pub port: u16,
    /// What paths are put below; empty, or with a leading and without a trailing slash.
    pub base: String,
}

impl Address {
    /// The scheme of its URIs.
    pub fn scheme(&self) -> &'static str {
        if self.speech == Speech::Tls { "https" } else { "http" }
    }

    /// Whether this is where we listen ourselves, as far as its text tells.
    pub fn is_at(&self, listening: SocketAddr) -> bool {
        self.port == listening.port() && self.ips().any(|ip| reaches(ip, listening.ip().to_canonical()))
    }

    /// Where its host leads, as far as its text tells.
    fn ips(&self) -> impl Iterator<Item = IpAddr> {
        const V4: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
        const V6: IpAddr = IpAddr::V6(Ipv6Addr::LOCALHOST);
        let name = self.host.trim_end_matches('.').to_ascii_lowercase();
        let (first, second) = match self.host.parse::<IpAddr>().map(|ip| ip.to_canonical()) {
            // Whoever connects to no address in particular gets to this machine.
            Ok(IpAddr::V4(ip)) if ip.is_unspecified() => (Some(V4), None),
            Ok(IpAddr::V6(ip)) if ip.is_unspecified() => (Some(V6), None),
            Ok(ip) => (Some(ip), None),
            Err(_) if name == "localhost" || name.ends_with(".localhost") => (Some(V4), Some(V6)),
            Err(_) => (None, None),
        };
        first.into_iter().chain(second)
    }
}

/// Whether what is sent to this address gets to a listener on that one.
fn reaches(ip: IpAddr, listening: IpAddr) -> bool {
    match listening {
        IpAddr::V4(all) if all.is_unspecified() => ip.is_ipv4() && ip.is_loopback(),
        // It usually listens for both families; whether it does is up to the system.
        IpAddr::V6(all) if all.is_unspecified() => ip.is_loopback(),
        one => ip == one,
    }
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const EXPECTED: &str =
            "an address looks like http://127.0.0.1:9000, https://api.example.com or h2c://host:port";
        // What stands before an @ may be a password.
        let shown = text.rsplit_once('@').map_or(text, |(_, rest)| rest);
        let uri: Uri = text.parse().map_err(|e| format!("{shown:?} is no address ({e}); {EXPECTED}"))?;
        let (speech, port) = match uri.scheme_str() {
            Some("http") => (Speech::Http1, 80),
            Some("h2c") => (Speech::Http2, 80),
            Some("https") => (Speech::Tls, 443),
            _ => return Err(format!("{shown:?} has another scheme than http, https or h2c; {EXPECTED}")),
        };
        let authority =
            uri.authority().cloned().ok_or_else(|| format!("{shown:?} names no host; {EXPECTED}"))?;
        if authority.as_str().contains('@') {
            return Err("an address holds no user name and password".to_owned());
        }
        if uri.query().is_some() || text.contains('#') {
            return Err("an address has no query and no fragment".to_owned());
        }
        let host = authority.host().trim_matches(['[', ']']).to_owned();
        if host.is_empty() {
            return Err(format!("{shown:?} names no host; {EXPECTED}"));
        }
        let host_header = HeaderValue::from_str(authority.as_str()).map_err(|e| format!("{shown:?}: {e}"))?;
        let base = uri.path().trim_end_matches('/').to_owned();
        if let Err(why) = read_path(uri.path()) {
            return Err(format!("{shown:?}: {why}"));
        }
        let port = match authority.as_str().rsplit_once(':') {
            // The last colon of an address of version 6 stands within its brackets.
            Some((_, given)) if !given.ends_with(']') => given
                .parse()
                .ok()
                .filter(|port| *port != 0)
                .ok_or_else(|| format!("{shown:?}: {given:?} is no port; allowed: 1 to 65535"))?,
            _ => port,
        };
        Ok(Self { speech, authority, host_header, host, port, base })
    }
}

#[cfg(test)]
mod tests {
    use super::{Address, Speech};

    #[test]
    fn an_address_that_leads_back_is_known_for_one() {
        for (upstream, listening, back) in [
            ("http://127.0.0.1:7300", "127.0.0.1:7300", true),
            ("http://localhost:7300", "127.0.0.1:7300", true),
            ("http://localhost:7300", "[::1]:7300", true),
            ("http://127.0.0.1:7300/base", "0.0.0.0:7300", true),
            ("http://0.0.0.0:7300", "0.0.0.0:7300", true),
            ("http://localhost.:7300", "127.0.0.1:7300", true),
            ("http://shop.localhost:7300", "127.0.0.1:7300", true),
            ("https://[::1]", "[::]:443", true),
            ("http://[::]:7300", "[::1]:7300", true),
            ("http://localhost:7300", "0.0.0.0:7300", true),
            ("http://localhost:7300", "[::]:7300", true),
            // A listener for all addresses of version 6 takes those of version 4 as well.
            ("http://127.0.0.1:7300", "[::]:7300", true),
            ("http://0.0.0.0:7300", "[::]:7300", true),
            ("http://[::ffff:127.0.0.1]:7300", "127.0.0.1:7300", true),
            ("http://[::ffff:127.0.0.1]:7300", "0.0.0.0:7300", true),
            ("http://10.0.0.1:7300", "10.0.0.1:7300", true),
            ("http://127.0.0.1:9000", "127.0.0.1:7300", false),
            ("http://10.0.0.1:7300", "127.0.0.1:7300", false),
            ("http://127.0.0.2:7300", "127.0.0.1:7300", false),
            ("http://shop:7300", "0.0.0.0:7300", false),
            ("http://localhost:7300", "10.0.0.1:7300", false),
            // Another family is another listener.
            ("http://[::1]:7300", "0.0.0.0:7300", false),
            ("http://[::]:7300", "0.0.0.0:7300", false),
            ("http://[::1]:7300", "127.0.0.1:7300", false),
            ("http://0.0.0.0:7300", "10.0.0.1:7300", false),
        ] {
            let address: Address = upstream.parse().unwrap();
            assert_eq!(address.is_at(listening.parse().unwrap()), back, "{upstream} {listening}");
        }
    }

    #[test]
    fn addresses_are_read_and_bad_ones_refused() {
        let address: Address = "https://api.example.com/v1/".parse().unwrap();
        assert_eq!((address.speech, address.port, address.base.as_str()), (Speech::Tls, 443, "/v1"));
        let address: Address = "http://[::1]:9000".parse().unwrap();
        assert_eq!(
            (address.host.as_str(), address.port, address.authority.as_str()),
            ("::1", 9000, "[::1]:9000")
        );
        assert_eq!("h2c://a:1".parse::<Address>().unwrap().speech, Speech::Http2);
        assert_eq!("https://[::1]".parse::<Address>().unwrap().port, 443);
        for bad in
            ["", "127.0.0.1:9000", "ftp://a", "http://", "http://u:p@a", "http://a?x", "/path", "http://a b"]
        {
            assert!(bad.parse::<Address>().is_err(), "{bad}");
        }
        // The usual port would be another service than the one that was meant.
        for bad in ["http://a:99999", "http://a:0", "http://a:", "http://[::1]:70000"] {
            assert!(bad.parse::<Address>().unwrap_err().contains("is no port"), "{bad}");
        }
        for bad in ["http://a/../b", "http://a/%zz", "http://a/x/%2e%2e"] {
            assert!(bad.parse::<Address>().is_err(), "{bad}");
        }
        for secret in ["http://u:s3cret@host:bad", "ftp://u:s3cret@host", "http://u:s3cret@h", "u:s3cret@h"] {
            let told = secret.parse::<Address>().unwrap_err();
            assert!(!told.contains("s3cret"), "{told}");
        }
    }
}
