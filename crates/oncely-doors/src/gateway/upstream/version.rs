//! How a request is put in either version of the protocol: a request that comes back unsent may go out in the other one.

use http::header::{HOST, HeaderValue};
use http::{Request, Uri, Version};

use crate::gateway::address::Address;

/// HTTP/1.1 wants just the path, and names the service in `Host`.
pub(super) fn for_http1<B>(request: &mut Request<B>) {
    *request.version_mut() = Version::HTTP_11;
    if request.uri().authority().is_none() {
        return;
    }
    let mut parts = std::mem::take(request.uri_mut()).into_parts();
    parts.scheme = None;
    if let Some(authority) = parts.authority.take()
        && !request.headers().contains_key(HOST)
        && let Ok(host) = HeaderValue::from_str(authority.as_str())
    {
        request.headers_mut().insert(HOST, host);
    }
    *request.uri_mut() = Uri::from_parts(parts).unwrap_or_default();
}

/// HTTP/2 wants the whole URI, and no `Host` beside it.
pub(super) fn for_http2<B>(request: &mut Request<B>, address: &Address) {
    *request.version_mut() = Version::HTTP_2;
    let mut parts = request.uri().clone().into_parts();
    parts.scheme = address.scheme().parse().ok();
    if parts.authority.is_none() {
        let host = request.headers().get(HOST).and_then(|h| h.to_str().ok());
        parts.authority = host.and_then(|h| h.parse().ok()).or_else(|| Some(address.authority.clone()));
    }
    if let Ok(uri) = Uri::from_parts(parts) {
        *request.uri_mut() = uri;
    }
    request.headers_mut().remove(HOST);
}

#[cfg(test)]
mod tests {
    use http::{Request, Version};

    use super::{for_http1, for_http2};

    #[test]
    fn what_was_put_for_one_version_can_be_put_for_the_other() {
        let address = "https://service.example:8443".parse().unwrap();
        let mut request = Request::post("/orders?n=1").header("host", "shop.example").body(()).unwrap();
        for _ in 0..2 {
            for_http2(&mut request, &address);
            assert_eq!(request.uri(), "https://shop.example/orders?n=1");
            assert!(request.version() == Version::HTTP_2 && !request.headers().contains_key("host"));
            for_http1(&mut request);
            assert_eq!(request.uri(), "/orders?n=1");
            assert!(request.version() == Version::HTTP_11 && request.headers()["host"] == "shop.example");
        }
    }
}
