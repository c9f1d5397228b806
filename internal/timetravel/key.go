package timetravel

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"strconv"
	"unicode/utf8"
)

// sortKey encodes a row's key so that the order of bytes is that of the values: missing ones, whole
// numbers, texts.
func sortKey(key []json.RawMessage) []byte {
	var b []byte
	for _, value := range key {
		b = appendSortable(b, value)
	}
	return b
}

func appendSortable(b []byte, value json.RawMessage) []byte {
	if n, err := strconv.ParseInt(string(value), 10, 64); err == nil {
		return binary.BigEndian.AppendUint64(append(b, 1), uint64(n)^1<<63)
	}
	var text string
	switch {
	case bytes.Equal(value, []byte("null")):
		return append(b, 0)
	case !utf8.Valid(value) || json.Unmarshal(value, &text) != nil:
		text = string(value) // also a number beyond 64 bits
	}
	b = append(b, 2)
	for i := range len(text) {
		if b = append(b, text[i]); text[i] == 0 {
			b = append(b, 1)
		}
	}
	return append(b, 0, 0)
}

// rowName names a row of a table without telling its key. The same row has the same name in every
// replay.
func rowName(table string, sort []byte) string {
	sum := sha256.Sum256(append([]byte(table+"\x00"), sort...))
	return hex.EncodeToString(sum[:12])
}
