//! The distributions as an SVG picture: one row per line on a logarithmic scale, from the 1st to the 99th percentile,
//! with the middle half as a box and the median as a number.

use super::figures::{Document, Line};

const LABELS: f64 = 330.0;
const PLOT: f64 = 560.0;
const ROW: f64 = 30.0;
const TOP: f64 = 46.0;
const RIGHT: f64 = 90.0;

pub(super) fn svg(document: &Document) -> String {
    let scale = Scale::of(&document.lines);
    #[expect(clippy::cast_precision_loss, reason = "some ten rows")]
    let bottom = TOP + ROW * document.lines.len() as f64;
    let (width, height) = (LABELS + PLOT + RIGHT, bottom + 40.0);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"#ffffff\"/>\n\
         <text x=\"12\" y=\"20\" font-size=\"14\" fill=\"#222222\">Time of one call: p1 to p99, box p25 to p75, median in ms</text>\n\
         <text x=\"12\" y=\"36\" fill=\"#777777\">{}</text>\n",
        escaped(&document.machine)
    );
    for tick in scale.ticks() {
        let x = scale.at(tick);
        svg += &format!(
            "<line x1=\"{x:.1}\" y1=\"{TOP}\" x2=\"{x:.1}\" y2=\"{bottom}\" stroke=\"#e4e4e4\"/>\
             <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\" fill=\"#777777\">{tick}</text>\n",
            bottom + 16.0
        );
    }
    svg += &format!(
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\" fill=\"#777777\">ms</text>\n",
        LABELS + PLOT / 2.0,
        bottom + 32.0
    );
    let mut y = TOP + ROW / 2.0;
    for line in &document.lines {
        row(&mut svg, &scale, line, y);
        y += ROW;
    }
    svg + "</svg>\n"
}

fn row(svg: &mut String, scale: &Scale, line: &Line, y: f64) {
    let [p1, p25, p50, p75, p99] = [1, 25, 50, 75, 99].map(|percent| scale.at(line.percentile(percent)));
    let color = if line.reference.is_some() {
        "#1f6feb"
    } else {
        "#8a8a8a"
    };
    *svg += &format!(
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\" fill=\"#222222\">{}</text>\
         <line x1=\"{p1:.1}\" y1=\"{y:.1}\" x2=\"{p99:.1}\" y2=\"{y:.1}\" stroke=\"{color}\" stroke-width=\"2\"/>\
         <rect x=\"{p25:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"14\" rx=\"2\" fill=\"{color}\" fill-opacity=\"0.45\"/>\
         <line x1=\"{p50:.1}\" y1=\"{:.1}\" x2=\"{p50:.1}\" y2=\"{:.1}\" stroke=\"{color}\" stroke-width=\"3\"/>\
         <text x=\"{:.1}\" y=\"{:.1}\" fill=\"#222222\">{:.2}</text>\n",
        LABELS - 10.0,
        y + 4.0,
        escaped(&line.name),
        y - 7.0,
        (p75 - p25).max(1.0),
        y - 9.0,
        y + 9.0,
        p99 + 6.0,
        y + 4.0,
        line.percentile(50)
    );
}

struct Scale {
    least: f64,
    most: f64,
}

impl Scale {
    fn of(lines: &[Line]) -> Self {
        let all = |percent| lines.iter().map(move |line| line.percentile(percent));
        let least = all(1).fold(f64::INFINITY, f64::min);
        let most = all(99).fold(0.0, f64::max);
        Self {
            least: least * 0.8,
            most: most * 1.2,
        }
    }

    fn at(&self, milliseconds: f64) -> f64 {
        LABELS + PLOT * (milliseconds / self.least).ln() / (self.most / self.least).ln()
    }

    /// 1, 2 and 5 times each power of ten, within the scale.
    fn ticks(&self) -> Vec<f64> {
        let powers = (-6..7).map(|power| 10_f64.powi(power));
        powers
            .flat_map(|power| [power, 2.0 * power, 5.0 * power])
            .filter(|tick| (self.least..=self.most).contains(tick))
            .collect()
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plot_has_one_row_per_line_and_escapes_markup() {
        let document = Document {
            machine: "<script>".to_owned(),
            lines: vec![
                Line::new("bare & slow", None, vec![10.0, 11.0]),
                Line::new("ours", Some("bare"), vec![2.5]),
            ],
            ..Document::default()
        };
        let picture = svg(&document);
        assert!(picture.starts_with("<svg ") && picture.trim_end().ends_with("</svg>"));
        assert!(
            picture.contains("bare &amp; slow") && picture.contains(">2.50<") && !picture.contains("<script")
        );
        assert_eq!(picture.matches("<rect ").count(), 3);
        assert!(!picture.contains("NaN") && !picture.contains("inf"));
    }

    #[test]
    fn longer_times_are_further_right() {
        let scale = Scale::of(&[Line::new("", None, vec![1.0, 100.0])]);
        assert!(scale.at(1.0) < scale.at(10.0) && scale.at(10.0) < scale.at(100.0));
        assert_eq!(scale.ticks(), [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0]);
    }
}
