package redact

// triggerLeast is the fewest bytes that a trigger has.
const triggerLeast = 3

// trigger is a text without which a secret of a kind cannot be there. Its
// letters are small; it is found in any case.
type trigger struct {
	text  string
	match func(m *matching, at, n int) (from, to int, ok bool)
}

// finder finds triggers in one pass over a text that leaves out what it can: it
// looks at pairs of bytes, and a pair that is in the beginning of no trigger lets
// it go on two bytes further (Wu and Manber's method). Its tables are small enough
// to stay in the processor's nearest cache.
type finder struct {
	class  [256]uint8              // of a byte: its number among those that triggers begin with, in any case; 0 for others
	shift  [classes * classes]byte // by a pair of classes: how far the next trigger's beginning is away at least
	begins [classes * classes * classes]uint16
	lists  [][]trigger // begins has the place in it of the triggers that begin so, counted from 1
}

// classes is more than letters, digits and the few signs that triggers begin with.
const classes = 48

func newFinder(all []trigger) *finder {
	f := &finder{}
	for i := range f.shift {
		f.shift[i] = 2
	}
	last := uint8(0)
	for _, t := range all {
		for i := range triggerLeast {
			if f.class[t.text[i]] != 0 {
				continue
			}
			last++
			for _, c := range bothCases(t.text[i]) {
				f.class[c] = last
			}
		}
		a, b, c := f.class[t.text[0]], f.class[t.text[1]], f.class[t.text[2]]
		f.shift[pair(a, b)] = min(f.shift[pair(a, b)], 1)
		f.shift[pair(b, c)] = 0
		place := &f.begins[triple(a, b, c)]
		if *place == 0 {
			f.lists = append(f.lists, nil)
			*place = uint16(len(f.lists))
		}
		f.lists[*place-1] = append(f.lists[*place-1], t)
	}
	return f
}

func pair(a, b uint8) int { return int(a)*classes + int(b) }

func triple(a, b, c uint8) int { return pair(a, b)*classes + int(c) }

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

// next finds the first trigger from position i on, and those that begin there.
// found is nil when there is none.
func (f *finder) next(s string, i int) (at int, found []trigger) {
	for i+2 < len(s) {
		b, c := f.class[s[i+1]], f.class[s[i+2]]
		if n := f.shift[pair(b, c)]; n > 0 {
			i += int(n)
			continue
		}
		if place := f.begins[triple(f.class[s[i]], b, c)]; place > 0 {
			if found = beginning(f.lists[place-1], s[i:]); len(found) > 0 {
				return i, found
			}
		}
		i++
	}
	return len(s), nil
}

// beginning are the triggers that a text begins with.
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
