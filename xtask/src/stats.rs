//! Percentiles of a few measurements.

/// Measurements in milliseconds, sorted.
#[derive(Clone, Debug)]
pub struct Samples {
    sorted: Vec<f64>,
}

impl Samples {
    /// Takes measurements in any order. Returns `None` if there are none.
    pub fn new(mut milliseconds: Vec<f64>) -> Option<Self> {
        milliseconds.sort_by(f64::total_cmp);
        (!milliseconds.is_empty()).then_some(Self { sorted: milliseconds })
    }

    /// Returns the smallest value that is at least as large as `percent` % of the measurements (nearest rank).
    pub fn percentile(&self, percent: usize) -> f64 {
        let rank = (self.sorted.len() * percent).div_ceil(100).max(1);
        self.sorted[rank.min(self.sorted.len()) - 1]
    }

    /// Returns the smallest measurement.
    pub fn min(&self) -> f64 {
        self.sorted[0]
    }

    /// Returns the number of measurements.
    pub fn count(&self) -> usize {
        self.sorted.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_by_nearest_rank() {
        let samples = Samples::new((1..=100).rev().map(f64::from).collect()).unwrap();
        let check = |percent, expect: f64| {
            assert_eq!(
                samples.percentile(percent).to_bits(),
                expect.to_bits(),
                "{percent}"
            )
        };
        check(50, 50.0);
        check(90, 90.0);
        check(99, 99.0);
        check(100, 100.0);
        check(0, 1.0);
        assert_eq!(samples.min().to_bits(), 1.0_f64.to_bits());
        assert_eq!(samples.count(), 100);
    }

    #[test]
    fn percentile_of_one_sample_is_that_sample_and_no_samples_are_refused() {
        let one = Samples::new(vec![7.0]).unwrap();
        assert_eq!(one.percentile(99).to_bits(), 7.0_f64.to_bits());
        assert!(Samples::new(Vec::new()).is_none());
    }
}
