package outbox

// AppendCondition makes an append depend on what is not in the journal: the append
// is refused when an event after a position is of any of the items. It is
// checked together with the append, so that nothing comes between the two.
type AppendCondition struct {
	// AfterPosition is the last position that the writer has seen; events up
	// to it are not in the way. 0 looks at the whole journal.
	AfterPosition int64           `json:"after_position"`
	Items         []ConditionItem `json:"items"` // at least one, at most MaxConditionItems
}

// MaxConditionItems is the most items of a condition.
const MaxConditionItems = 100

// ConditionItem selects events in the way of an append: those of any of the
// types that have all of the tags. One of the two may be left out. Fields of
// the envelope count as tags of their names.
type ConditionItem struct {
	EventTypes []string          `json:"event_types,omitempty"`
	Tags       map[string]string `json:"tags,omitempty"`
}
