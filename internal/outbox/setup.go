package outbox

// About describes a process and its databases.
type About struct {
	Version     string           `json:"version"`
	Go          string           `json:"go"` // the version of Go it was built with
	Mode        Mode             `json:"mode"`
	ReadOnly    bool             `json:"read_only"`
	Ready       bool             `json:"ready"`
	Reasons     []string         `json:"reasons"` // why it is not ready
	Databases   []DatabaseInfo   `json:"databases"`
	Projections []ProjectionInfo `json:"projections"`
	Settings    []Setting        `json:"settings"` // without secrets
	Cost        CostReport       `json:"cost"`
	Request     Arrival          `json:"request" redact:"-"` // this request as it arrived
}
