package redact

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/outboxweb/outboxweb/internal/cputest"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/size"
)

// Secrets of every format, assembled here so that scanners do not report this file as a leak.
var (
	jwt     = "eyJhbGciOiJIUzI1NiJ9" + "." + "eyJzdWIiOiIxMjM0NTY3ODkwIn0" + "." + "dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U"
	pemText = "-----BEGIN RSA " + "PRIVATE KEY-----\nMIIEpAIBAAKCAQEA7\n-----END RSA " + "PRIVATE KEY-----"
	samples = map[string]string{
		"jwt": jwt, "pem": pemText,
		"aws": "AKIA" + "IOSFODNN7EXAMPLE", "sts": "ASIA" + "IOSFODNN7EXAMPLE",
		"github": "ghp_" + "16C7e42F292c6912E7710c838347Ae178B4a", "github fine": "github_pat_" + "11ABCDEFG0abcdefghijkl_mnop",
		"gitlab": "glpat-" + "abcdefgh12345678_-xy", "slack": "xoxb-" + "1234567890-abcdefghij",
		"stripe": "sk_live_" + "4eC39HqLyjWDarjtT1zdp7dc", "openai": "sk-" + "proj-abcdefghij0123456789", "google": "AIza" + "SyD-9tSrke72PouQMnMX-a7eZSW0jkFMBWY",
		"vault": "hvs." + "CAESIJlU02LQZq0abcdefgh", "sendgrid": "SG." + "abcdefghijklmnopqrstuv" + ".abcdefghijklmnopqrstuvwxyz0123456789", "google oauth": "ya29." + "a0AfH6SMBabcdefghijkl",
		"npm": "npm_" + "abcdefghijklmnopqrstuvwxyz0123456789", "ours": "obw_" + "0123456789abcdefghijklmnopqrstuvwxyzABCDEFG",
	}
)

func TestText_hidesKnownFormsWhereverTheyStand(t *testing.T) {
	t.Parallel()
	r := Builtin()
	for name, secret := range samples {
		for _, around := range []string{"%s", "cannot use %s here", `value "%s" is bad`, "a=%s;b", "x\n%s\ny", "(%s)", "müde:%s,"} {
			text := fmt.Sprintf(around, secret)
			got := r.Text(text)
			must.Hold(t, !strings.Contains(got, secret) && strings.Contains(got, Mark), "%s in %q becomes %q", name, around, got)
		}
	}
}

func TestText_hidesWhatIsAssigned(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ text, want string }{
		{"connect with password=hunterdeux failed", "connect with password=[redacted] failed"},
		{"PGPASSWORD='a b c' psql", "PGPASSWORD='a b c' psql"}, // one word, and not a known one
		{"DB_PASSWORD='a b c' psql", "DB_PASSWORD='[redacted]' psql"},
		{"password: hunterdeux", "password: [redacted]"},
		{`{"password":"hunter2", bad`, `{"password":"[redacted]", bad`},
		{`got "{\"api_key\":\"hunter2\"}"`, `got "{\"api_key\":\"[redacted]\"}"`},
		{"clientSecret => abc, next", "clientSecret => [redacted], next"},
		{"token: invalid signature", "token: invalid signature"},
		{"token: a81Bz rejected", "token: [redacted] rejected"},
		{"Authorization: Basic dXNlcjpwYXNz\nHost: x", "Authorization: [redacted]\nHost: x"},
		{"Set-Cookie: sid=1; Path=/", "Set-Cookie: [redacted]"},
		{"Authorization: Bearer abc", "Authorization: [redacted]"},
		{"header Bearer xyz123 refused", "header Bearer [redacted] refused"},
		{"no bearer token was given", "no bearer token was given"},
		{"dial postgres://ana:hunterdeux@db:5432/x: refused", "dial postgres://ana:[redacted]@db:5432/x: refused"},
		{"dial postgres://ana:hunter/deux@db/x", "dial postgres://ana:[redacted]@db/x"},
		{"see http://127.0.0.1:8080/a@b", "see http://127.0.0.1:8080/a@b"},
		{`near "token": syntax error`, `near "token": syntax error`},
		{"secrets={a: {b}} then", "secrets=[redacted] then"},
		{"token_count=12 author=ana secretary=eve", "token_count=12 author=ana secretary=eve"},
		{"max_tokens=4096", "max_tokens=4096"},
		{`{"a": 1, "token": 7, "b": "x"}`, `{"a": 1, "token": "[redacted]", "b": "x"}`},
		{"-----BEGIN PRIVATE KEY-----\nabc", "[redacted]"},
		{"-----BEGIN CERTIFICATE-----\nabc\n-----END CERTIFICATE-----", "-----BEGIN CERTIFICATE-----\nabc\n-----END CERTIFICATE-----"},
		{"task-abcdefghij0123456789abc", "task-abcdefghij0123456789abc"},
		{"the eyJust.of.it", "the eyJust.of.it"},
		{"next=https%3A%2F%2Fy%2F%3Ftoken%3Da%2Bb%26c=1", "next=https%3A%2F%2Fy%2F%3Ftoken%3D[redacted]%26c=1"},
		{"next=https%253A%252F%252Fy%253Ftoken%253Dab%2526c", "next=https%253A%252F%252Fy%253Ftoken%253D[redacted]%2526c"},
		{"body %7B%22password%22%3A%22hunterdeux%22%7D", "body %7B%22password%22%3A%22[redacted]%22%7D"},
		{"100%token rate", "100%token rate"},
		{"header Bearer\txyz123 refused", "header Bearer\t[redacted] refused"},
		{"header Basic " + "dXNlcjpwYXNz refused", "header Basic [redacted] refused"},
		{"Basic knowledge of it", "Basic knowledge of it"},
		{`Authorization: Digest username="ana", response="6629" end`, "Authorization: [redacted]"},
		{`"Authorization: Digest x" end`, `"Authorization: [redacted]" end`},
		{"<ns:password>hunterdeux</ns:password> <a>b</a>", "<ns:password>[redacted]</ns:password> <a>b</a>"},
		{"if password>max", "if password>max"},
		{"psql --password hunterdeux --host x", "psql --password [redacted] --host x"},
		{"--password --host x", "--password --host x"},
		{"set password='it''s so' where", "set password='[redacted]' where"},
		{"AccountName=a;AccountKey=abc==;x", "AccountName=a;AccountKey=[redacted];x"},
		{"tokens: [a, b] and token: [c", "tokens: [a, b] and token: [c"},
		{"connection_string=abc;Pooling=1", "connection_string=[redacted];Pooling=1"},
		{"user[password]=hunterdeux&user[name]=ana", "user[password]=[redacted]&user[name]=ana"},
		{"a[0][password][]=hunterdeux&b=1", "a[0][password][]=[redacted]&b=1"},
		{"a[password][0][x]=hunterdeux", "a[password][0][x]=[redacted]"},
		{`a["password"] = "hunter deux" b`, `a["password"] = "[redacted]" b`},
		{"user%5Bpassword%5D=hunterdeux&b=1", "user%5Bpassword%5D=[redacted]&b=1"},
		{"u%5Bpassword%5D%5B%5D=hunterdeux&b=1", "u%5Bpassword%5D%5B%5D=[redacted]&b=1"},
		{"next=%2F%3Fuser%255Bpassword%255D%3Dhunterdeux%26c", "next=%2F%3Fuser%255Bpassword%255D%3D[redacted]%26c"},
		{"[password] [x] name", "[password] [x] name"},
		{`<x:Password Type="y">hunterdeux</x:Password> <a>b</a>`, `<x:Password Type="y">[redacted]</x:Password> <a>b</a>`},
		{"<password\n\ttype='a>b'\n>hunterdeux</password>", "<password\n\ttype='a>[redacted]</password>"},
		{`<password type="a/>b">hunterdeux</password>`, `<password type="a/>[redacted]</password>`},
		{`<password a="b"/>shown<b/>`, `<password a="b"/>shown<b/>`},
		{"<password><![CDATA[hunter<deux]]></password>", "<password><![CDATA[[redacted]]]></password>"},
		{"<password>\n  <![CDATA[hunter<deux]]>\n</password>", "<password>\n  <![CDATA[[redacted]]]>\n</password>"},
		{`<user x:password = "hunterdeux" id='1' pwd='hunterdeux'/>`, `<user x:password = "[redacted]" id='1' pwd='[redacted]'/>`},
		{"<password <b>x</b>", "<password <b>x</b>"},
		{"", ""},
	} {
		must.Equal(t, Builtin().Text(c.text), c.want, c.text, "becomes")
	}
}

func TestNames(t *testing.T) {
	t.Parallel()
	r := must.Get(New(Config{Keys: []string{"Card Number", "ssn", "patient data", "bank 2", "raw header", "header"}})).Or(t)
	for name, want := range map[string]bool{
		"password": true, "Password": true, "user_password": true, "userPassword": true, "PASSWORD": true, "password2": true, "password_hash": true,
		"newPasswordConfirmation": true, "passwords": true, "passwd": true, "secret": true, "clientSecret": true, "client-secret": true, "secrets": true,
		"token": true, "access_token": true, "AccessToken": true, "csrfToken": true, "oauth2Token": true, "JWTToken": true, "access_tokens": true,
		"api key": true, "apiKey": true, "APIKey": true, "X-Api-Key": true, "apikey": true, "api_keys": true, "private_key": true, "privateKeyPem": true,
		"AWS_SECRET_ACCESS_KEY": true, "authorization": true, "Proxy-Authorization": true, "Cookie": true, "set-cookie": true, "credentials": true,
		"pass_word": true, "userPassWord": true, "PIN code": true, "account_key": true,
		"cvv": true, "CVV2": true, "session_key": true, "sessionSecret": true, "bearer": true, "card_number": true, "SSN": true, "pincode": true,
		"connection string": true, "ConnectionStrings": true, "DB_CONNECTION_STRING": true, "connectionString2": true, "patientData": true, "patient_data_raw": true,
		"bank2": true, "BANK_2": true, "raw-header": true, "x_header": true, "headerText": true,
		"patient": false, "data": false, "bank": false, "bank_21": false, "connection": false, "string": false,
		"token_count": false, "tokens": false, "max_tokens": false, "secretary": false, "author": false, "authorized": false, "monkey": false, "key": false,
		"passenger": false, "compass": false, "password_changed_at": false, "cookies_enabled": false, "tokenizer": false, "public_key": false, "session_id": false,
		"opinion": false, "secret_santa": false, "": false, "-": false, "number": false, "identity": false,
	} {
		must.Equal(t, r.HidesName(name), want, "is hidden", !want)
	}
}

func TestJSON_keepsEverythingElseByteForByte(t *testing.T) {
	t.Parallel()
	given := `{ "n":1.50e+3, "big":123456789012345678901234567890 ,"password":{"a":[1,"}"]},` + "\n" +
		`"dup":1,"dup":"` + samples["aws"] + `","list":[0,{"Api-Key":null},"x\u00e9","plain \/ text"],"nested":"{\"token\":\"abc\",\"n\":1.0}","ghost":"\u0067hp_16C7e42F292c6912E7710c838347Ae178B4a"}`
	want := `{ "n":1.50e+3, "big":123456789012345678901234567890 ,"password":"[redacted]",` + "\n" +
		`"dup":1,"dup":"[redacted]","list":[0,{"Api-Key":"[redacted]"},"x\u00e9","plain \/ text"],"nested":"{\"token\":\"[redacted]\",\"n\":1.0}","ghost":"[redacted]"}`
	got, paths := Builtin().JSON(json.RawMessage(given))
	must.Equal(t, string(got), want)
	must.Equal(t, paths, []string{"password", "dup", "list[1].Api-Key", "nested", "ghost"}, "the places")
}

func TestJSON_whatHoldsNoSecretIsTheSameBytes(t *testing.T) {
	t.Parallel()
	for _, text := range []string{`{}`, `{"author":"ana","token_count":3}`, `[]`, ` {"a" : "b\u0041"}`, `"x"`, `null`, `{"a":"\ud800"}`} {
		raw := json.RawMessage(text)
		got, paths := Builtin().JSON(raw)
		must.Hold(t, string(got) == text && paths == nil, "%s becomes %s, with %q", text, got, paths)
	}
}

func TestJSON_deepNestingIsNoTrouble(t *testing.T) {
	t.Parallel()
	const deep = 9000
	text := strings.Repeat(`{"a":[`, deep/2) + `{"password":"hunterdeux"}` + strings.Repeat(`]}`, deep/2)
	got, paths := Builtin().JSON(json.RawMessage(text))
	must.Hold(t, !strings.Contains(string(got), "hunterdeux") && len(paths) == 1 && len(paths[0]) <= longestPath+len("…"), "got %d places in %d bytes", len(paths), len(got))
	nested := `{"password":"hunterdeux"}`
	for range 12 {
		quoted := must.Get(json.Marshal(map[string]string{"in": nested})).Or(t)
		nested = string(quoted)
		got := Builtin().Text(nested)
		must.Need(t, !strings.Contains(got, "hunterdeux") && json.Valid([]byte(got)), "texts in texts become %q", got)
	}
}

func TestText_takesTimeInProportion(t *testing.T) {
	t.Parallel()
	for _, piece := range []string{"eyJ", "eyJabc.", "://", "://a:b", "password", "password=", "-----BEGIN PRIVATE KEY", "sk-", "Bearer ", "token: \"", "{\"", "[", "secret={", `\"token`, "api_key ", "xoxb-", "AKIA", "Authorization: ", "token: [", "token: {\"", "secret_token_", "password%", "<token", "<a:token>", "--token ", "token: [1", "basic a", "token%3D%20", "%25", "token='\\", "token]", "token[", "token[]", "token[]=[", "token%5D", "%5Btoken%5D=", "<token ", "<a:token ", "<token a='>", "<token><![CDATA["} {
		whole := size.Of(1<<16, 1<<17, 1<<20)
		small, large := strings.Repeat(piece, whole/cputest.Parts/len(piece)), strings.Repeat(piece, whole/len(piece))
		cputest.InProportion(t, piece, func() { Builtin().Text(small) }, func() { Builtin().Text(large) })
	}
}

func TestJSON_pairsOfNameAndValue(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		given, want string
		paths       []string
	}{
		{`[{"name":"DB_PASSWORD","value":"hunterdeux","id":1},{"key":"level","value":7},{"Header":"Authorization","in":{"value":3},"Values":["x"]}]`,
			`[{"name":"DB_PASSWORD","value":"[redacted]","id":1},{"key":"level","value":7},{"Header":"Authorization","in":{"value":3},"Values":"[redacted]"}]`,
			[]string{"[0].value", "[2].Values"}},
		{`[{"value":"hunterdeux","name":"DB_PASSWORD"},{"Value":{"value":["x"],"name":"level"},"a":"password","KEY":"connection string"}]`,
			`[{"value":"[redacted]","name":"DB_PASSWORD"},{"Value":"[redacted]","a":"password","KEY":"connection string"}]`,
			[]string{"[0].value", "[1].Value"}},
		{`[{"value":7,"key":"level"},{"value":{"value":"hunterdeux","field":"p\u0061ssword"},"name":"level"},{"name":"token","x":[{"value":8}]}]`,
			`[{"value":7,"key":"level"},{"value":{"value":"[redacted]","field":"p\u0061ssword"},"name":"level"},{"name":"token","x":[{"value":8}]}]`,
			[]string{"[1].value.value"}},
	} {
		got, paths := Builtin().JSON(json.RawMessage(c.given))
		must.Hold(t, string(got) == c.want && slices.Equal(paths, c.paths), "got  %s\nwant %s\nplaces %q", got, c.want, paths)
	}
}

func TestJSON_takesTimeInProportion(t *testing.T) {
	t.Parallel()
	for _, member := range []string{`"value"`, `"name":"token","x"`, `"x":"password","value"`} {
		document := func(depth int) json.RawMessage {
			return json.RawMessage(strings.Repeat("{"+member+":", depth) + "1" + strings.Repeat(`,"name":"level"}`, depth))
		}
		small, large := document(9600/cputest.Parts), document(9600)
		cputest.InProportion(t, member, func() { Builtin().JSON(small) }, func() { Builtin().JSON(large) })
	}
}

func TestNew_givenPatterns(t *testing.T) {
	t.Parallel()
	r := must.Get(New(Config{Keys: []string{"iban"}, Values: []string{`DE\d{20}`, `redacted`, `\b4\d{15}\b`}})).Or(t)
	must.Equal(t, r.Text("pay DE12345678901234567890 [redacted] now, iban=x"), "pay [redacted] [redacted] now, iban=[redacted]")
	got, paths := r.JSON(json.RawMessage(`{"IBAN":1,"n":12,"card":4111111111111111,"x":["DE12345678901234567890"]}`))
	must.Hold(t, string(got) == `{"IBAN":"[redacted]","n":12,"card":"[redacted]","x":["[redacted]"]}` && slices.Equal(paths, []string{"IBAN", "card", "x[0]"}), "got %s, %q", got, paths)
	for _, bad := range []Config{{Keys: []string{""}}, {Keys: []string{"--"}}, {Keys: []string{"a b c d e"}}, {Keys: []string{strings.Repeat("x", maxName+1)}}, {Values: []string{"("}}, {Values: []string{"a*"}}} {
		var refusal *event.Refusal
		_, err := New(bad)
		must.Hold(t, errors.As(err, &refusal) && refusal.Field != "", "%+v is not refused: %v", bad, err)
	}
}

type stringer struct{ text string }

func (s stringer) String() string { return s.text }

func TestLog_hidesInEveryPlaceAndKeepsToOneLine(t *testing.T) {
	t.Parallel()
	const hostile = "a\nb\rc\u2028d\u2029e\x1b[31mf"
	for _, format := range []string{"text", "json"} {
		var b bytes.Buffer
		var to slog.Handler = slog.NewTextHandler(&b, nil)
		if format == "json" {
			to = slog.NewJSONHandler(&b, nil)
		}
		log := slog.New(Builtin().Log(to)).With("given", "password=hunterdeux").WithGroup("g").With("err", errors.New("token="+jwt))
		log.Info("message "+jwt+hostile, "error", fmt.Errorf("x: %w"+hostile, errors.New("password=hunterdeux")), "s", stringer{samples["aws"]}, "password", 7,
			slog.Group("in", "deep", samples["github"], slog.Group("er", "b", []byte(samples["npm"]))), "raw", json.RawMessage(`{"password":"hunterdeux"}`),
			"map", map[string]string{"password": "hunterdeux"}, "nothing", nil, "noerr", error(nil), "nilptr", (*stringer)(nil), hostile, hostile, "of "+samples["aws"], 1)
		out := b.String()
		for name, secret := range samples {
			must.Hold(t, !strings.Contains(out, secret), "%s: the log has the %s secret: %s", format, name, out)
		}
		must.Hold(t, !strings.Contains(out, "hunterdeux") && !strings.ContainsAny(strings.TrimSuffix(out, "\n"), "\n\r\u2028\u2029\x1b"), "%s: the log has a secret or more than a line: %q", format, out)
	}
}

func FuzzRedactJSON(f *testing.F) {
	for name, secret := range samples {
		text := must.Get(json.Marshal(map[string]any{name: secret, "list": []string{"x " + secret}, "password": map[string]int{"a": 1}})).Or(f)
		f.Add(text)
	}
	f.Add([]byte(`{"a":"password=\"x y\" {[","b":"Authorization: Bearer a"}`))
	f.Add([]byte(`["postgres://a:b@c","{\"token\":[1]}","\u0070assword=1"]`))
	given := must.Get(New(Config{Keys: []string{"x"}, Values: []string{`b+`}})).Or(f)
	f.Fuzz(func(t *testing.T, raw []byte) {
		if !json.Valid(raw) {
			t.Skip()
		}
		for _, r := range []*Redactor{Builtin(), given} {
			once, paths := r.JSON(raw)
			must.Need(t, json.Valid(once), "%s becomes %s", raw, once)
			must.Need(t, len(paths) != 0 || bytes.Equal(once, raw), "%s becomes %s, and no place is named", raw, once)
			twice, _ := r.JSON(once)
			must.Need(t, r != Builtin() || bytes.Equal(twice, once), "%s becomes %s, and then %s", raw, once, twice)
		}
	})
}
