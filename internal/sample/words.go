package sample

var (
	places = []string{"The Hollow Lighthouse", "Cinder Ford", "Saint Odile's Stair", "The Low Orchard", "Marrow Bridge", "Glasswater",
		"The Tithe Barn", "Ninefold Quay", "Thornmarch", "The Salt Library", "Weeping Gate", "Old Brindle Road", "The Amber Deeps", "Kestrel Rock"}
	troubles = []string{"in Arrears", "by Night", "and the Drowned Bell", "without a King", "on the Last Ferry", "Under Three Moons",
		"and the Borrowed Name", "at the Turn of the Tide", "in Want of Rain", "and the Clockmaker's Debt", "After the Fire", "Before the Thaw"}
	people = []string{"Imke", "Tobias", "Noor", "Ruairi", "Saoirse", "Mateo", "Yuki", "Adaeze", "Lina", "Henrik", "Zofia", "Kwame", "Élodie", "Jiří", "芽衣", "Amira"}
	heroes = []string{"Vessa Quill", "Orrin Tallow", "Sister Bracken", "Ilmar the Late", "Pell", "Dame Oxlip", "Corvin Ashdown", "Mirelle Voss-Adair",
		"Tam Underhill", "Juniper Rake", "Bo of the Reeds", "Hesper Lund", "Quillon", "Wren Attercop"}
	foes     = []string{"A toll wraith", "The reeve's hounds", "A clay bailiff", "The moth queen", "Bandits of the Fen", "A drowned choir", "The hungry hedge", "Captain Sorrel"}
	callings = []string{"warden", "chandler", "cartographer", "bonesetter", "bellringer", "smuggler"}
	pasts    = []string{"Raised by ferrymen", "Once a court liar", "Kept bees for a dragon", "Deserted the Ember Guard", "Reads dead languages"}
	things   = []string{"a brass compass", "a jar of moths", "her mother's key", "three feet of rope", "a broken seal", "the second half of a map", "a tin whistle"}
	themes   = []string{"debts and weather", "a heist that goes too well", "small gods", "frontier court", "winter is late"}
	covers   = []string{"lantern", "tide", "ember", "bramble", "slate", "heron", "copper"}

	conditions = []string{"hidden", "restrained", "shaken", "exposed"}
	pronouns   = []string{"she/her", "he/him", "they/them"}
	locales    = []string{"en-US", "en-US", "pt-BR"}
)
