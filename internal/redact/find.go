package redact

// triggerLeast is the minimum length of a trigger, in bytes.
const triggerLeast = 3

// trigger is a text that every secret of a kind contains. It is lower case and matched in any
// case.
type trigger struct {
	text  string
	match func(m *matching, at, n int) (from, to int, ok bool)
}

// finder finds triggers in one pass over a text. A bitmap over three byte classes says whether
// a trigger begins there; hardly any three bytes of a text do. Skipping algorithms are slower
// here: each step would have to wait for the lookup before it.
type finder struct {
	class  [256]uint8                        // of a byte: its number among those that triggers begin with, in any case; 0 for others
	begins [1 << (3 * classBits) / 64]uint64 // by three classes
	lists  map[uint32][]trigger
}

// classBits suffice for the letters, digits and few other characters that triggers begin with.
const (
	classBits = 6
	threeMask = 1<<(3*classBits) - 1
)

func newFinder(all []trigger) *finder {
	f := &finder{lists: map[uint32][]trigger{}}
	last := uint8(0)
	for _, t := range all {
		three := uint32(0)
		for i := range triggerLeast {
			if f.class[t.text[i]] == 0 {
				last++
				for _, c := range bothCases(t.text[i]) {
					f.class[c] = last
				}
			}
			three = three<<classBits | uint32(f.class[t.text[i]])
		}
		f.begins[three/64] |= 1 << (three % 64)
		f.lists[three] = append(f.lists[three], t)
	}
	return f
}

func bothCases(c byte) []byte {
	if c >= 'a' && c <= 'z' {
		return []byte{c, c - 'a' + 'A'}
	}
	return []byte{c}
}

func small(c byte) byte {
	if c >= 'A' && c <= 'Z' {
		return c + 'a' - 'A'
	}
	return c
}

func (f *finder) any(s string) bool {
	_, found := f.next(s, 0)
	return found != nil
}

// next finds the first position from i on where triggers begin, and those triggers. found is
// nil when there is none.
func (f *finder) next(s string, i int) (at int, found []trigger) {
	three := uint32(0)
	for ; i < len(s); i++ {
		three = (three<<classBits | uint32(f.class[s[i]])) & threeMask
		if f.begins[three/64]>>(three%64)&1 == 0 {
			continue
		}
		if found = beginning(f.lists[three], s[i-2:]); len(found) > 0 {
			return i - 2, found
		}
	}
	return len(s), nil
}

// beginning returns the triggers that a text begins with.
func beginning(all []trigger, s string) (found []trigger) {
	for _, t := range all {
		if hasPrefixAnyCase(s, t.text) {
			found = append(found, t)
		}
	}
	return found
}

func hasPrefixAnyCase(s, prefix string) bool {
	if len(s) < len(prefix) {
		return false
	}
	for i := range len(prefix) {
		if small(s[i]) != prefix[i] {
			return false
		}
	}
	return true
}
