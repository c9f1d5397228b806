package redact

import (
	"strings"
	"unicode"
)

// builtinKeys are the names of secrets, as words.
var builtinKeys = []string{
	"password", "pass word", "passwd", "passphrase", "pass phrase", "passcode", "pass code", "pwd",
	"secret",
	"token", "access tokens", "refresh tokens", "auth tokens", "api tokens", "bearer", "jwt", "client assertion",
	"authorization", "credential",
	"api key", "private key", "secret key", "access key", "account key", "session key", "signing key", "encryption key", "master key", "ssh key",
	"cookie", "set cookie", "connection string", "dsn",
	"cvv", "cvc", "csc", "card verification", "security code", "pin code", "otp", "recovery code", "backup code",
}

// trailing are words about a secret that are ignored after its name: password_hash, tokenValue,
// secret2. A pattern may itself end in one, such as connection string. Words that count or date
// it make another name: token_count, password_changed_at.
var trailing = map[string]bool{
	"hash": true, "hashed": true, "digest": true, "salt": true, "value": true, "values": true, "string": true, "text": true, "raw": true, "plain": true,
	"plaintext": true, "base64": true, "b64": true, "hex": true, "pem": true, "encrypted": true, "header": true, "data": true,
	"old": true, "new": true, "current": true, "previous": true, "confirm": true, "confirmation": true, "repeat": true, "again": true,
}

// Limits of a name: the words that count, and their total bytes.
const (
	maxWords = 4
	maxName  = 200
)

// names are the names of secrets. A name is split into words, at changes from lower to upper
// case and at characters that are neither letter nor digit. It matches when its last words are
// those of a pattern, separate or joined, with or without a plural s (tokens alone is the count
// of language models, not a plural). So accessToken, X-Api-Key and password_2 match;
// token_count, secretary and author do not.
type names map[string]bool

func (n names) add(words []string) {
	for _, form := range []string{strings.Join(words, " "), strings.Join(words, "")} {
		n[form] = true
		if form != "token" && !strings.HasSuffix(form, "s") {
			n[form+"s"] = true
		}
	}
}

func (n names) match(name string) bool {
	if len(name) > maxName {
		name = name[len(name)-maxName:]
	}
	words := wordsOf(name)
	for len(words) > 0 {
		if n.end(words) {
			return true
		}
		last := words[len(words)-1]
		if !trailing[last] && !isNumber(last) {
			return false
		}
		words = words[:len(words)-1]
	}
	return false
}

// end reports whether some words end with those of a pattern.
func (n names) end(words []string) bool {
	for k := 1; k <= min(maxWords, len(words)); k++ {
		if n[strings.Join(words[len(words)-k:], " ")] {
			return true
		}
	}
	return false
}

// wordsOf splits a name into words in lower case.
func wordsOf(name string) []string {
	var words []string
	var word []rune
	end := func() {
		if len(word) > 0 {
			words = append(words, string(word))
			word = word[:0]
		}
	}
	all := []rune(name)
	for i, r := range all {
		if !unicode.IsLetter(r) && !unicode.IsDigit(r) {
			end()
			continue
		}
		if i > 0 && begins(all, i) {
			end()
		}
		word = append(word, unicode.ToLower(r))
	}
	end()
	return words
}

// begins reports whether a word begins at i in a run of letters and digits: at an upper-case
// letter after a lower-case one, at the last of several upper-case letters before a lower-case
// one, and between letters and digits.
func begins(all []rune, i int) bool {
	r, before := all[i], all[i-1]
	switch {
	case unicode.IsDigit(r) != unicode.IsDigit(before):
		return true
	case !unicode.IsUpper(r):
		return false
	case !unicode.IsUpper(before):
		return true
	}
	return i+1 < len(all) && unicode.IsLower(all[i+1])
}

func isNumber(word string) bool {
	return strings.IndexFunc(word, func(r rune) bool { return !unicode.IsDigit(r) }) < 0
}
