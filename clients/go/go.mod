module holdline.test/holdline

go 1.25
