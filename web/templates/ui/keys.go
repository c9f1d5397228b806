package ui

// keys are the keyboard shortcuts of the scripts in web/static/js.
var keys = []struct {
	keys []string
	does string
}{
	{[]string{"/"}, "find or do anything"},
	{[]string{"Ctrl", "k"}, "the same, also while typing"},
	{[]string{"g", "o"}, "go to the overview"},
	{[]string{"g", "c"}, "go to the campaigns"},
	{[]string{"g", "e"}, "go to the events"},
	{[]string{"g", "p"}, "go to the failures"},
	{[]string{"g", "j"}, "go to the runs"},
	{[]string{"g", "r"}, "go to the projections"},
	{[]string{"g", "u"}, "go to the publishers"},
	{[]string{"g", "s"}, "go to the system"},
	{[]string{"j"}, "next row of a list"},
	{[]string{"k"}, "previous row"},
	{[]string{"x"}, "select the line"},
	{[]string{"Enter"}, "open the row"},
	{[]string{"["}, "previous event"},
	{[]string{"]"}, "next event"},
	{[]string{"p"}, "auto-refresh on or off"},
	{[]string{"t"}, "times: relative, UTC or local"},
	{[]string{"?"}, "this help"},
}
