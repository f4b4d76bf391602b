package spec

import (
	"sort"
	"strings"
)

// Nearest finds the known word that the user most likely meant, or "".
func Nearest(word string, known []string) string {
	best, bestDistance := "", 1<<30
	lower := strings.ToLower(word)
	for _, k := range known {
		d := distance(lower, strings.ToLower(k))
		limit := max(1, max(len(lower), len(k))/3)
		if len(lower) >= 3 && strings.HasPrefix(strings.ToLower(k), lower) || len(k) >= 3 && strings.HasPrefix(lower, strings.ToLower(k)) {
			d = min(d, limit)
		}
		if d <= limit && d < bestDistance {
			best, bestDistance = k, d
		}
	}
	return best
}

// Suggest is the fix for an unknown word: "did you mean …? known: …".
func Suggest(word string, known []string) string {
	const shown = 16
	list := append([]string(nil), known...)
	sort.Strings(list)
	text := "known: " + strings.Join(list[:min(shown, len(list))], ", ")
	if len(list) > shown {
		text += ", …"
	}
	if len(list) == 0 {
		text = "none is known here"
	}
	if n := Nearest(word, known); n != "" {
		return "did you mean \"" + n + "\"? " + text
	}
	return text
}

// distance is the number of letters to insert, delete, change or swap with their neighbour (restricted
// Damerau-Levenshtein distance).
func distance(a, b string) int {
	const limit = 64 // keys are short; a pasted paragraph is not a typo of one
	if len(a) > limit || len(b) > limit {
		return limit
	}
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			d := min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				d = min(d, rows[i-2][j-2]+1)
			}
			rows[i][j] = d
		}
	}
	return rows[len(a)][len(b)]
}
