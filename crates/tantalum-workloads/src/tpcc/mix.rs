//! Which transactions come how often: a deck of cards for each terminal, shuffled anew when it is used up
//! (clause 5.2.4.2), so that the shares are exact.

use serde::Serialize;
use tantalum_rt::Random;

/// The five types of transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Clause 2.4.
    NewOrder,
    /// Clause 2.5.
    Payment,
    /// Clause 2.6.
    OrderStatus,
    /// Clause 2.7.
    Delivery,
    /// Clause 2.8.
    StockLevel,
}

impl Kind {
    /// Names, in the order of the variants.
    pub const NAMES: [&'static str; 5] = ["new-order", "payment", "order-status", "delivery", "stock-level"];
}

/// The shares of the five types, as in Table I of the comparison of in-place and log-structured file systems on flash
/// SSDs (NAS 2010).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
pub enum Mix {
    /// 43.48 % new-order and payment each, 4.35 % of the others: the specification's.
    #[default]
    Normal,
    /// 43.48 % order-status and stock-level each, 4.35 % of the others.
    ReadIntensive,
    /// 96 % new-order, 1 % of the others.
    WriteIntensive,
}

impl Mix {
    /// Cards of each kind in a deck.
    const fn cards(self) -> [(Kind, usize); 5] {
        use Kind::{Delivery, NewOrder, OrderStatus, Payment, StockLevel};
        match self {
            Self::Normal => [(NewOrder, 10), (Payment, 10), (OrderStatus, 1), (Delivery, 1), (StockLevel, 1)],
            Self::ReadIntensive => [(NewOrder, 1), (Payment, 1), (OrderStatus, 10), (Delivery, 1), (StockLevel, 10)],
            Self::WriteIntensive => [(NewOrder, 96), (Payment, 1), (OrderStatus, 1), (Delivery, 1), (StockLevel, 1)],
        }
    }
}

/// A terminal's cards.
pub(super) struct Deck {
    cards: Vec<Kind>,
    drawn: usize,
}

impl Deck {
    pub(super) fn new(mix: Mix) -> Self {
        let cards: Vec<Kind> = mix.cards().iter().flat_map(|&(kind, count)| vec![kind; count]).collect();
        Self { drawn: cards.len(), cards }
    }

    pub(super) fn draw(&mut self, random: &mut Random) -> Kind {
        if self.drawn == self.cards.len() {
            random.shuffle(&mut self.cards);
            self.drawn = 0;
        }
        self.drawn += 1;
        self.cards[self.drawn - 1]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_decks_have_the_published_shares() {
        let published = [
            (Mix::Normal, [43.48, 43.48, 4.35, 4.35, 4.35]),
            (Mix::ReadIntensive, [4.35, 4.35, 43.48, 4.35, 43.48]),
            (Mix::WriteIntensive, [96.0, 1.0, 1.0, 1.0, 1.0]),
        ];
        for (mix, shares) in published {
            let (mut deck, mut random) = (Deck::new(mix), Random::with_seed(1));
            let mut counts = [0; 5];
            for _ in 0..2300 {
                counts[deck.draw(&mut random) as usize] += 1;
            }
            for (count, share) in counts.iter().zip(shares) {
                assert!((f64::from(*count) / 23.0 - share).abs() < 0.01, "{mix:?}: {counts:?}");
            }
        }
    }
}
