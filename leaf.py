import sys,collections
for v in ('old','new'):
    c=collections.Counter(); f=collections.Counter(); tot=0
    for l in open(f'/tmp/w/par/{v}.raw'):
        st,n=l.rsplit(' ',1); n=int(n); fr=st.split(';')
        if not any('advance' in x for x in fr): continue
        tot+=n
        leaf=fr[-1]; 
        c[leaf.rsplit(':',1)[0]]+=n; f[leaf[leaf.find('(')+1:].split(':')[0]]+=n
    print(v,tot)
    for k,n in f.most_common(32): print('   %6d ms/round  %s'%(n*2/13,k))
    print()
    if v=='new':
        for k,n in c.most_common(60): print('   %6.1f ms/round  %s'%(n*2/13,k))
