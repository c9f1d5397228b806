package campaign

import (
	"github.com/outboxweb/outboxweb/internal/database"
	"github.com/outboxweb/outboxweb/internal/operator"
)

// About describes a process and its databases.
type About struct {
	Version     string                  `json:"version"`
	Go          string                  `json:"go"` // the version of Go it was built with
	Mode        Mode                    `json:"mode"`
	ReadOnly    bool                    `json:"read_only"`
	Ready       bool                    `json:"ready"`
	Reasons     []string                `json:"reasons"` // why it is not ready
	Databases   []database.DatabaseInfo `json:"databases"`
	Projections []ProjectionInfo        `json:"projections"`
	Settings    []database.Setting      `json:"settings"` // without secrets
	Cost        database.CostReport     `json:"cost"`
	Request     operator.Arrival        `json:"request" redact:"-"` // this request as it arrived
}
