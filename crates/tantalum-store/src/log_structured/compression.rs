//! Pages as they are stored: compressed where that saves an eighth of a page or more, or else as they are.
//!
//! The *image* of a compressed page is the number of compressed bytes in two bytes, those bytes, and zeros up to the end of a unit. The map
//! says how long an image is; if it is shorter than a page, the page is compressed.

use lz4_flex::block::{self, CompressTable};

use super::layout::UNIT_BYTES;

/// How the log-structured store compresses pages.
///
/// ```
/// use tantalum_store::PageCompression;
/// assert_eq!(PageCompression::default(), PageCompression::None);
/// assert_eq!("lz4".parse(), Ok(PageCompression::Lz4));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum PageCompression {
    /// Not at all: a page takes as many bytes on the device as in memory.
    #[default]
    None,
    /// With LZ4, where that saves an eighth of a page or more.
    Lz4,
}

impl PageCompression {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::None, Self::Lz4];

    /// Its name in settings and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Lz4 => "lz4",
        }
    }
}

tantalum_device::named_field!(PageCompression);

/// The bytes of an image that say how long what follows is.
const LENGTH_BYTES: usize = 2;

/// Compresses pages, with memory that it keeps from one to the next.
pub struct Compressor {
    table: CompressTable,
    buffer: Vec<u8>,
}

impl Compressor {
    /// One for pages of so many bytes.
    pub fn new(page_bytes: usize) -> Self {
        let buffer = vec![0; block::get_maximum_output_size(page_bytes)];
        Self { table: CompressTable::small(), buffer }
    }

    /// Adds a page's image to `images`. False, and nothing is added, if it is to be stored as it is.
    pub fn add(&mut self, page: &[u8], images: &mut Vec<u8>) -> bool {
        let length = block::compress_into_with_table(page, &mut self.buffer, &mut self.table);
        let length = length.expect("there is room for what cannot be compressed");
        let image_bytes = (LENGTH_BYTES + length).next_multiple_of(UNIT_BYTES);
        if image_bytes > page.len() - page.len() / 8 {
            return false;
        }
        let end = images.len() + image_bytes;
        images.extend_from_slice(&(length as u16).to_le_bytes());
        images.extend_from_slice(&self.buffer[..length]);
        images.resize(end, 0);
        true
    }
}

/// Makes a page of its image.
///
/// # Errors
/// Says why that is no image of a page. What is in `page` then is anything.
pub fn page_of(image: &[u8], page: &mut [u8]) -> Result<(), String> {
    if image.len() == page.len() {
        page.copy_from_slice(image);
        return Ok(());
    }
    let (length, rest) = image.split_at_checked(LENGTH_BYTES).ok_or("nothing is stored of it")?;
    let length = usize::from(u16::from_le_bytes([length[0], length[1]]));
    let compressed = rest.get(..length).ok_or_else(|| {
        format!("{length} compressed bytes are said to be stored of it, where there is room for {}", rest.len())
    })?;
    match block::decompress_into(compressed, page) {
        Ok(bytes) if bytes == page.len() => Ok(()),
        Ok(bytes) => Err(format!("decompressed, it has {bytes} bytes")),
        Err(error) => Err(format!("it cannot be decompressed: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tantalum_rt::Random;

    use super::*;

    fn image_of(page: &[u8]) -> Option<Vec<u8>> {
        let mut images = vec![7; 3];
        let is_added = Compressor::new(page.len()).add(page, &mut images);
        assert_eq!(images[..3], [7; 3]);
        let image = images.split_off(3);
        assert_eq!(is_added, !image.is_empty());
        is_added.then_some(image)
    }

    #[test]
    fn a_page_comes_back_from_its_image() {
        let mut random = Random::with_seed(1);
        for page_bytes in [4096, 8192, 16384] {
            let mut last = 0;
            for filled in (0..=page_bytes).step_by(page_bytes / 16) {
                let mut page = vec![0; page_bytes];
                page[..filled].fill_with(|| random.u8(..));
                let Some(image) = image_of(&page) else {
                    assert!(filled > page_bytes * 3 / 4, "{filled} bytes of {page_bytes} cannot be compressed");
                    continue;
                };
                assert!(image.len().is_multiple_of(UNIT_BYTES) && image.len() >= last && image.len() > filled);
                last = image.len();
                let mut found = vec![0xee; page_bytes];
                page_of(&image, &mut found).unwrap();
                assert_eq!(found, page);
            }
            assert!(last <= page_bytes - page_bytes / 8);
        }
    }

    #[test]
    fn what_is_no_image_is_refused_with_the_reason() {
        let image = image_of(&[5; 4096]).unwrap();
        let refused = |image: &[u8]| page_of(image, &mut [0; 4096]).unwrap_err();
        assert!(refused(&[]).contains("nothing"));
        assert!(refused(&[0xff; 256]).contains("room for 254"));
        assert!(refused(&[0; 256]).contains("cannot be decompressed"));
        let mut short = vec![0; 4096];
        assert!(page_of(&image, &mut short[..2048]).is_err(), "it is one of a longer page");
        assert!(page_of(&image_of(&[5; 8192]).unwrap(), &mut short).is_err());
    }

    proptest! {
        #[test]
        fn no_image_makes_it_panic(image in proptest::collection::vec(any::<u8>(), 0..4096), length in any::<u8>()) {
            let mut image = image;
            let mut page = [0; 4096];
            let _any = page_of(&image, &mut page);
            if let Some(bytes) = image.get_mut(..2) {
                bytes.copy_from_slice(&[length, 0]);
                let _any = page_of(&image, &mut page);
            }
        }
    }
}
