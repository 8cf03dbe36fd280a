//! The connection of one contender to the observer, which counts who is inside.

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpStream};

pub(crate) struct Observer {
    stream: BufReader<TcpStream>,
}

impl Observer {
    pub(crate) fn connect(port: u16) -> Result<Observer, String> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port));
        let stream = stream.map_err(|error| format!("no observer: {error}"))?;
        stream.set_nodelay(true).map_err(|error| error.to_string())?;
        Ok(Observer { stream: BufReader::new(stream) })
    }

    pub(crate) fn report(&mut self, word: &str) -> Result<(), String> {
        let mut answer = String::new();
        let sent = self.stream.get_mut().write_all(format!("{word}\n").as_bytes());
        let read = sent.and_then(|()| self.stream.read_line(&mut answer));
        match read {
            Ok(_) if answer == "ok\n" => Ok(()),
            Ok(_) => Err(format!("the observer answered {answer:?}")),
            Err(error) => Err(format!("the observer: {error}")),
        }
    }
}
