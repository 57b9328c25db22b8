//! The outside of the egress cases, all on this host's loopback: a name server that knows one name, and a web server.

use std::{
    io::{Read, Write},
    net::{TcpListener, UdpSocket},
    thread,
};

pub const NAME: &str = "api.allowed.test";

/// The ports of both.
pub struct Outside {
    pub names: u16,
    pub web: u16,
}

pub fn begin() -> std::io::Result<Outside> {
    let names = UdpSocket::bind("127.0.0.1:0")?;
    let web = TcpListener::bind("127.0.0.1:0")?;
    let outside = Outside {
        names: names.local_addr()?.port(),
        web: web.local_addr()?.port(),
    };
    thread::spawn(move || answer(&names));
    thread::spawn(move || serve(&web));
    Ok(outside)
}

/// Every name has the address of this host's loopback; other kinds of records have no answer.
fn answer(socket: &UdpSocket) {
    let mut query = [0; 512];
    while let Ok((count, from)) = socket.recv_from(&mut query) {
        let Some(end) = query[12..count]
            .iter()
            .position(|byte| *byte == 0)
            .map(|at| at + 12 + 5)
        else {
            continue;
        };
        let is_address = query[end - 3] == 1;
        let mut reply = query[..end].to_vec();
        (reply[2], reply[3]) = (0x81, 0x80);
        reply[4..12].copy_from_slice(&[0, 1, 0, u8::from(is_address), 0, 0, 0, 0]);
        if is_address {
            reply.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 127, 0, 0, 1]);
        }
        drop(socket.send_to(&reply, from));
    }
}

fn serve(listener: &TcpListener) {
    for mut stream in listener.incoming().flatten() {
        thread::spawn(move || {
            drop(stream.read(&mut [0; 4096]));
            let body = "hello from outside";
            let head = format!(
                "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                body.len()
            );
            drop(stream.write_all(format!("{head}{body}").as_bytes()));
        });
    }
}
