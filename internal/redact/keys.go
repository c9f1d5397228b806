package redact

import (
	"strings"
	"unicode"
)

// builtinKeys are the names under which secrets stand, in words.
var builtinKeys = []string{
	"password", "pass word", "passwd", "passphrase", "pass phrase", "passcode", "pass code", "pwd",
	"secret",
	"token", "access tokens", "refresh tokens", "auth tokens", "api tokens", "bearer", "jwt", "client assertion",
	"authorization", "credential",
	"api key", "private key", "secret key", "access key", "account key", "session key", "signing key", "encryption key", "master key", "ssh key",
	"cookie", "set cookie", "connection string", "dsn",
	"cvv", "cvc", "csc", "card verification", "security code", "pin code", "otp", "recovery code", "backup code",
}

// trailing are words that say something of a secret and are passed over behind
// it: password_hash, tokenValue, secret2. A pattern may itself end in one, as
// connection string does. What counts it or dates it is another
// thing: token_count, password_changed_at.
var trailing = map[string]bool{
	"hash": true, "hashed": true, "digest": true, "salt": true, "value": true, "values": true, "string": true, "text": true, "raw": true, "plain": true,
	"plaintext": true, "base64": true, "b64": true, "hex": true, "pem": true, "encrypted": true, "header": true, "data": true,
	"old": true, "new": true, "current": true, "previous": true, "confirm": true, "confirmation": true, "repeat": true, "again": true,
}

// A name has at most so many words that count, of so many bytes in all.
const (
	maxWords = 4
	maxName  = 200
)

// names are the names under which secrets stand. A name is taken apart into
// words, at changes from small to capital letters and at whatever is neither
// letter nor digit. It matches when its last words are those of a pattern, apart
// or written as one, with or without a plural s (tokens alone is the count of
// language models, and no plural). So accessToken, X-Api-Key and password_2
// match, and token_count, secretary and author do not.
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

// end reports whether the last of some words are those of a pattern.
func (n names) end(words []string) bool {
	for k := 1; k <= min(maxWords, len(words)); k++ {
		if n[strings.Join(words[len(words)-k:], " ")] {
			return true
		}
	}
	return false
}

// wordsOf takes a name apart into words of small letters.
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

// begins reports whether a word begins within a run of letters and digits: at a
// capital after a small letter, at the last capital of several before a small
// letter, and between letters and digits.
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
