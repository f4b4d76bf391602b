package remote_test

import (
	"crypto/rand"
	"encoding/hex"
)

func randomName() string {
	b := make([]byte, 6)
	rand.Read(b)
	return hex.EncodeToString(b)
}

func orchestrate([]string) int { return 2 }
