//! The fastest service that can be put behind a proxy: it reads a request to its end and answers with the same 1 KiB.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::Result;

/// Says where it listens, and answers until it is killed.
pub(crate) fn serve() -> Result<()> {
    let runtime = crate::runtime()?;
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        println!("{}", listener.local_addr()?);
        let body = format!("{{\"text\":\"{}\"}}", "x".repeat(1013));
        let answer = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        let answer: &'static [u8] = answer.leak().as_bytes();
        loop {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            // A connection that ends badly is the proxy's business.
            tokio::spawn(async move { drop(attend(stream, answer).await) });
        }
    })
}

async fn attend(mut stream: TcpStream, answer: &[u8]) -> std::io::Result<()> {
    let mut buffer = vec![0; 16 * 1024];
    let mut filled = 0;
    loop {
        while let Some(length) = request(&buffer[..filled]) {
            buffer.copy_within(length..filled, 0);
            filled -= length;
            stream.write_all(answer).await?;
        }
        match stream.read(&mut buffer[filled..]).await? {
            0 => return Ok(()),
            read => filled += read,
        }
    }
}

/// The length of the first request, if it is whole. Only what the benchmark and the proxies send is understood.
fn request(bytes: &[u8]) -> Option<usize> {
    let head = bytes.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
    let length = bytes[..head].split(|byte| *byte == b'\n').find_map(|line| {
        let (name, value) = std::str::from_utf8(line).ok()?.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
    });
    let whole = head + length.unwrap_or(0);
    (bytes.len() >= whole).then_some(whole)
}
