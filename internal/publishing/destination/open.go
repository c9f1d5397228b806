package destination

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"outboxweb/internal/outbox"
)

// patience is how long one call of Publish may continue if events are acknowledged one by one:
// afterwards the delivered ones are recorded.
const patience = 5 * time.Second

// Open returns the subscription's publisher. It does not contact the destination, so an unreachable
// one is no error here. p must come from Parse.
func (p Subscription) Open(o Options) (Publisher, error) {
	is, known := p.settings.kind.info()
	if !known {
		return nil, outbox.Setup("publisher %s has no destination", p.SubscriptionName)
	}
	return is.open(p, o)
}

// destinationError blames the destination.
func destinationError(format string, args ...any) *Error {
	return &Error{Kind: outbox.DestinationError, Err: fmt.Errorf(format, args...)}
}

// eventError blames the event.
func eventError(format string, args ...any) *Error {
	return &Error{Kind: outbox.EventError, Err: fmt.Errorf(format, args...)}
}

// encoded returns the events as CloudEvents. It stops at an event that cannot be encoded, and err
// says why.
func encoded(events []*Event) (list [][]byte, err error) {
	for _, e := range events {
		b, err := e.CloudEvent()
		if err != nil {
			return list, eventError("%w", err)
		}
		list = append(list, b)
	}
	return list, nil
}

// tlsConfig trusts the certificates of a file, or those of the system if none is named.
func tlsConfig(sub outbox.SubscriptionName, caFile string) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if caFile == "" {
		return config, nil
	}
	pem, err := readSmall(caFile)
	if err != nil {
		return nil, outbox.Setup("ca_file of %s cannot be read: %v", sub, err)
	}
	config.RootCAs = x509.NewCertPool()
	if !config.RootCAs.AppendCertsFromPEM(pem) {
		return nil, outbox.Setup("ca_file of %s: %s has no certificate in PEM", sub, caFile)
	}
	return config, nil
}

func readSmall(path string) ([]byte, error) {
	const most = 4 << 20
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("it is not a regular file")
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && len(text) > most {
		err = errors.New("it is larger than 4 MiB")
	}
	return text, err
}
