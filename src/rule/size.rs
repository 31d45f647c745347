//! How large a batch may be, learnt from how long the last ones took.

use std::time::Duration;

/// What a batch is sized to: whoever pays one of its orders waits as long as that.
const BATCH: Duration = Duration::from_millis(200);

/// Orders of the first batch of a pass, before any was measured.
const FIRST: usize = 50;

/// How many orders a batch has.
pub(super) struct Size {
    pub(super) rows: usize,
    most: usize,
}

impl Size {
    pub(super) fn new(most: usize) -> Self {
        Self { rows: FIRST.min(most), most }
    }

    /// Learns from a batch that took `took`; a failed one has taken its time too.
    pub(super) fn learn(&mut self, took: Duration) {
        let factor = BATCH.as_micros() / took.as_micros().max(1);
        self.rows = match factor {
            0 => self.rows / 2,
            1 => self.rows,
            _ => self.rows.saturating_mul(2),
        };
        self.rows = self.rows.clamp(1, self.most);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_grows_while_it_is_quick_and_shrinks_when_it_is_slow() {
        let ms = Duration::from_millis;
        let mut size = Size::new(500);
        for (took, rows) in [(10, 100), (99, 200), (150, 200), (0, 400), (20, 500), (201, 250), (900, 125)] {
            size.learn(ms(took));
            assert_eq!(size.rows, rows, "after {took} ms");
        }
        for _ in 0..20 {
            size.learn(ms(900));
        }
        assert_eq!(size.rows, 1);
        assert_eq!(Size::new(7).rows, 7);
    }
}
