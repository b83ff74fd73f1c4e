//! What plots look like.

/// The style sheet of plots. A page has it once; a file of its own has it inside.
///
/// Series take the classes `c0` to `c7`, whose colours differ in lightness too and are told from either background.
/// All else is drawn in the colour of the text around it.
pub const STYLE: &str = "\
.plot{font:12px system-ui,'Segoe UI',Roboto,'Liberation Sans',sans-serif;display:block}
.plot text{fill:currentColor}
.plot .soft{fill-opacity:.72}
.plot .title{font-size:15px;font-weight:600}
.plot .grid{stroke:currentColor;stroke-opacity:.15;fill:none}
.plot .base{stroke:currentColor;stroke-opacity:.55;fill:none}
.plot .line{stroke:currentColor;stroke-width:2;fill:none;stroke-linejoin:round}
.plot .dashed{stroke-dasharray:5 4;stroke-width:1.5;stroke-opacity:.85}
.plot .lead{stroke:currentColor;stroke-opacity:.5;fill:none}
.plot .mark{fill:currentColor}
.plot .hollow{fill:none;stroke:currentColor;stroke-width:1.5}
.plot .bar{fill:currentColor;fill-opacity:.88}
.plot .dots{stroke:currentColor;stroke-width:3;stroke-linecap:round;stroke-opacity:.7;fill:none}
.c0{color:#0b63c5}.c1{color:#b94a00}.c2{color:#15803d}.c3{color:#a21caf}
.c4{color:#0e7490}.c5{color:#8a6100}.c6{color:#be123c}.c7{color:#5146d9}
@media (prefers-color-scheme:dark){
.c0{color:#6cb2ff}.c1{color:#ff9d57}.c2{color:#58d68d}.c3{color:#f08be4}
.c4{color:#4fd1e8}.c5{color:#e6c04a}.c6{color:#ff8296}.c7{color:#b0a8ff}}
";

/// How many colours there are.
pub(super) const COLOURS: usize = 8;

/// What a file has besides, which has no page around it.
pub(super) const ALONE: &str = "\
svg{color:#1d2228;background:#fff}
@media (prefers-color-scheme:dark){svg{color:#e6e9ec;background:#14171b}}
";
