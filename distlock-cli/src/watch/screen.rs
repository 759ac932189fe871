//! The terminal: it is taken over, and restored however the watch ends.

use std::io;
use std::time::Duration;

use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::{DefaultTerminal, Frame};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;

/// How soon the thread that reads keys notices that they are no longer needed.
const KEY_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// A request of the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Key {
    Quit,
    Up,
    Down,
    /// No request, but the screen must be redrawn.
    Resized,
}

/// The terminal while this program owns it.
pub(crate) struct Screen {
    terminal: DefaultTerminal,
    keys: mpsc::Receiver<Key>,
    terminate: Signal,
    hang_up: Signal,
}

impl Screen {
    /// Takes over the terminal.
    pub(crate) fn open() -> io::Result<Self> {
        let (terminate, hang_up) = (
            signal(SignalKind::terminate())?,
            signal(SignalKind::hangup())?,
        );
        // Also restores the terminal on a panic.
        let terminal = ratatui::try_init()?;
        let (sender, keys) = mpsc::channel(16);
        std::thread::spawn(move || read_keys(&sender));
        Ok(Screen {
            terminal,
            keys,
            terminate,
            hang_up,
        })
    }

    pub(crate) fn draw(&mut self, draw: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        self.terminal.draw(draw).map(|_| ())
    }

    /// Waits for the next key that has a meaning.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no key.
    pub(crate) async fn key(&mut self) -> Key {
        tokio::select! {
            // Without keys, the user could not quit.
            key = self.keys.recv() => key.unwrap_or(Key::Quit),
            _ = self.terminate.recv() => Key::Quit,
            _ = self.hang_up.recv() => Key::Quit,
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

/// Reads keys until they are no longer needed.
fn read_keys(keys: &mpsc::Sender<Key>) {
    while !keys.is_closed() {
        let event = match event::poll(KEY_POLL_INTERVAL) {
            Ok(false) => continue,
            Ok(true) => event::read(),
            Err(error) => Err(error),
        };
        let Ok(event) = event else { return };
        if let Some(key) = key_of(&event)
            && keys.blocking_send(key).is_err()
        {
            return;
        }
    }
}

fn key_of(event: &Event) -> Option<Key> {
    let key = match event {
        Event::Resize(..) => return Some(Key::Resized),
        Event::Key(key) if key.kind != KeyEventKind::Release => key,
        _ => return None,
    };
    match key.code {
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => Some(Key::Quit),
        KeyCode::Char('q') | KeyCode::Esc => Some(Key::Quit),
        KeyCode::Up | KeyCode::Char('k') => Some(Key::Up),
        KeyCode::Down | KeyCode::Char('j') => Some(Key::Down),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use ratatui::crossterm::event::KeyEvent;

    use super::*;

    #[test]
    fn keys_have_their_usual_meaning() {
        let none = KeyModifiers::NONE;
        let pressed = |code, modifiers| Event::Key(KeyEvent::new(code, modifiers));
        let letter = |letter, modifiers| pressed(KeyCode::Char(letter), modifiers);
        for (event, key) in [
            (letter('q', none), Some(Key::Quit)),
            (letter('c', KeyModifiers::CONTROL), Some(Key::Quit)),
            (letter('c', none), None),
            (pressed(KeyCode::Down, none), Some(Key::Down)),
            (Event::Resize(80, 24), Some(Key::Resized)),
        ] {
            assert_eq!(key_of(&event), key, "{event:?}");
        }
    }
}
