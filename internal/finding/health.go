package finding

// Health is the overall state in a sentence, with notes.
type Health struct {
	Level    Level
	Sentence string // the worst problem, or that there is none
	Notes    []string
}

// HealthOf is a state in a sentence: the worst finding or, without one, what is said then.
func HealthOf(l List, calm string) Health {
	h := Health{Level: l.Worst(), Sentence: calm}
	if h.Level != OK {
		h.Sentence = l.Grouped()[0].Says + "."
	}
	return h
}

// HealthOfKinds is HealthOf findings of these kinds, with each of the others as a note.
func HealthOfKinds(l List, calm string, kinds ...Kind) Health {
	groups := l.Of(kinds...).Grouped()
	h := HealthOf(groups, calm)
	for i, f := range groups {
		if i > 0 || h.Level == OK {
			h.Notes = append(h.Notes, f.Says+".")
		}
	}
	return h
}
